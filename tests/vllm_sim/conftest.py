from tests.vllm_sim.served import folder, ngram, plain, simulated_only, speculative

__all__ = ["folder", "ngram", "plain", "simulated_only", "speculative"]
