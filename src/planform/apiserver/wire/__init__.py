"""The HTTP side of the embedded API server: requests in, answers, streams and tables out."""
