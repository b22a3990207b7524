"""One module a data set; each defines ``DATASET``. A new file here is a new data set."""
