"""Pure builders of child objects: plain data in, Kubernetes manifests out."""
