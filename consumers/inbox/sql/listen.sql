-- What is awaited is told here when it is at its end.
listen inbox_finished
