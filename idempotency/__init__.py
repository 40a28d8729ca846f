"""The Redis store that lets a consumer recognise an event which it has processed before."""
