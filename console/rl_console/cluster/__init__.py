"""The Kubernetes API as the console speaks to it: kubeconfig, requests, objects, port forwards."""
