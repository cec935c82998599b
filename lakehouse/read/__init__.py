"""SQL over the lake: sessions, snapshots, and the views bound on top."""
