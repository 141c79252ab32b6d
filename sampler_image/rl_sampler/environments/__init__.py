"""Environments that answer the policy's actions: OpenEnv servers, by their WebSocket."""
