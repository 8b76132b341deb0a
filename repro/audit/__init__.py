"""Where do the bits part? One model on many executors, every value compared, the nodes that drift named.

records      what each executor said, and what was found: the data types of this folder
model        the audited model: flat, named, ordered; opened (every value a result) and severed (every node alone);
             flat, rewiring and identity do so: dimensions and Ifs decided, names, digests of nodes
golden       repro's own bits of every value, and its own targets as executors
peers/       other runtimes: one file each
worker       runs one executor in a process of its own; running starts them and keeps the time
capture      records on disk: what one machine has to say, portable; environment says which machine
comparison   pairs of captures: the first difference, the origins, how drift grows; origins walks back to these
verdict      what that comes to under a user's thresholds: rows and an exit code
drift        two arrays: units in the last place, signs, flips
probes/      the order in which an executor adds, read off its results
causes       known orders and roundings that give an origin's bits
reduce       the smallest model that still drifts: parts cuts it out, reproducer writes the script that shows it
report/      the findings as a table, JSON, JUnit, SARIF and one HTML page
"""
