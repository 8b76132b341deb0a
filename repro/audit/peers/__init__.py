"""Other runtimes, one file each. `PEERS` is the one table of them; a new one is a class with the methods of `Peer`."""
