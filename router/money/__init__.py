"""Prices tasks: tokens in money, and the weights that token pools count them by."""
