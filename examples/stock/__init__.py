"""What runs low is ordered, once for each time, whoever is killed and however busy the supplier is."""
