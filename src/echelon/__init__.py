"""Echelon: consumer groups on NATS JetStream and Kafka, for Python processes and Spark applications.

Messages of one key are processed strictly in order, by one process at a time, while the group grows,
shrinks, fails over and is rewound. Each layer imports only what stands above it in this list:

    errors, model            the words that every layer shares
    keys, assignment         key → partition, members → partitions
    group                    the protocol, as pure functions of the group's log
    brokers                  where logs and messages live: memory, nats, kafka
    members                  processes as members of a group
    spark, pcg               Spark applications as members; JetStream-native groups
    local                    real servers on this machine
    testing                  the simulator and the broker contract suite, for your own tests too
    ops, cli                 status, metrics, web page; the `echelon` command
"""
