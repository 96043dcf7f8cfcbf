"""WebSockets (RFC 6455): the handshake, and messages over the connection of an HTTP request."""
