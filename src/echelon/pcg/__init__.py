"""JetStream-native groups, wire-compatible with the partitioned consumer groups of the Go, Java and .NET libraries."""

from echelon.pcg.config import ElasticConfig, MemberMapping, PartitioningFilter, StaticConfig
from echelon.pcg.groups import Groups, open_groups
from echelon.pcg.member import Member
from echelon.pcg.options import Options

__all__ = [
    "ElasticConfig",
    "Groups",
    "Member",
    "MemberMapping",
    "Options",
    "PartitioningFilter",
    "StaticConfig",
    "open_groups",
]
