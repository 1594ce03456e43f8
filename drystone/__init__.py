"""`import drystone` is the Python client of Drystone, and nothing else."""

from drystone.client import AsyncClient, Client

__all__ = ["AsyncClient", "Client"]
