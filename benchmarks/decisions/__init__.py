"""Is the watch right? False alarms and delays against the rules of other controllers, on the same traces."""
