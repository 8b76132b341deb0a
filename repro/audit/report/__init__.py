"""The findings of an audit, for people and for machines.

view       what every form says, worked out once: executors, origins, outputs
document   JSON by manifests/schema/audit.schema.json
junit      a test case for each executor
sarif      a result for each origin, located at its ONNX node
plots      the geometry of the page's drawings
html       one page without scripts or network, from templates/
"""
