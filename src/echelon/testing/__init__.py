"""For tests: the simulator of the protocol, and the contract suite of brokers."""
