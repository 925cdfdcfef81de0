"""Two or more implementations of one operation, compared bit by bit on declared cases."""

from verify.endpoints.run import compare_endpoints
from verify.endpoints.spec import Case, Endpoint, EndpointSpec, Relation, load_spec

__all__ = ["Case", "Endpoint", "EndpointSpec", "Relation", "compare_endpoints", "load_spec"]
