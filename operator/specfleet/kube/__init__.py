"""The port to the API server, its adapter over kubernetes.aio, the cache of watched objects, and the Lease."""
