"""What every part of rl-operator agrees on: spec models, documents, stores, policy manifests."""
