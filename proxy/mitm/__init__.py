"""mitmproxy inside the gateway: started, corrected, made faster, and given certificates."""
