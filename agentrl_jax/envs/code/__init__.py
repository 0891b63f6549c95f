"""Working functions, bugs put into them, and how both are tried."""
