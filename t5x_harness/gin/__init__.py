"""Gin: its text read statement by statement without executing any, and the parsed config of a run.

It is above ``upstream``, whose private names of Gin the parsed config needs, and below everything that judges configs.
"""
