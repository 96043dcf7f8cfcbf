"""What is shipped as images, run as it is shipped."""
