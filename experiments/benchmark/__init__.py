"""Time and memory of every variant by length, against its peers, and the page that shows them."""
