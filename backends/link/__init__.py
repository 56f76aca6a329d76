"""Uses an engine in another process or host as a backend, over one WebSocket.

A `GenerateRequest` goes out as a frame, and one frame for each step of the engine comes back. Read
`frames.py` first, then `backend.py`.
"""
