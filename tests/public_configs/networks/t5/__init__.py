"""Stands for the package t5, of which configs of T5X import the tasks."""
