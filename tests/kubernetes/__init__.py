"""The manifests of kubernetes/."""
