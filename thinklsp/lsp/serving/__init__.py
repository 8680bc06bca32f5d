"""How clients come in: standard input and output, TCP, WebSocket; and the life of one connection."""
