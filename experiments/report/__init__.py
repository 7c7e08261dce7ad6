"""What records say side by side: tables, pictures, what may be claimed."""
