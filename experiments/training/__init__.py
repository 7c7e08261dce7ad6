"""Programs that train and test, and the seeds that go through them."""
