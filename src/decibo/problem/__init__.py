"""What is to be solved: two objectives, private data, local derivatives, and the exact answer to
judge by."""
