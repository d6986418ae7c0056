"""Proofs that two modules compute the same, for all arguments, by an SMT solver.

    prove(before, after)    Proved, Refuted with arguments on which the results differ, or Undecided with a reason
    prove_partitioned(module, partitions)    the same for a module and the program of its partitions

Both modules are evaluated on arrays of terms (`meanings/`), whose normal forms (`terms/`) are compared;
where these differ, `solver/` decides. Prior art: Alive2 for LLVM (Lopes et al., 2021), TensorRight for the rules of XLA
(Arora et al., 2025).
"""

from hloom.prove.equivalence import Proved, Refuted, Undecided, Verdict
from hloom.prove.partitions.partitioned import prove_partitioned
from hloom.prove.validation import prove

__all__ = ["Proved", "Refuted", "Undecided", "Verdict", "prove", "prove_partitioned"]
