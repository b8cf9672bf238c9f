"""The MCP server: tools and resources over ``Memory``, for clients that speak the Model Context Protocol."""
