"""All rules in the order in which they are reported, and how a spec is run through them."""

from specfleet.api.deployment import DeploymentSpec
from specfleet.api.speculation import Proposer
from specfleet.engine.findings import Finding
from specfleet.engine.rules import (
    about_arguments,
    about_candidates,
    about_devices,
    about_drafts,
    about_environment,
    about_keys,
    about_methods,
    about_nodes,
    about_parallelism,
    about_pods,
    about_runtime,
    about_schedules,
    about_versions,
    known_faults,
)
from specfleet.engine.rules.case import Case, ProposerCase, proposer_path
from specfleet.engine.rules.rule import Rule

SPEC_RULES: tuple[Rule[Case], ...] = (
    # Which engine is it?
    about_versions.engine_version_unknown,
    about_versions.engine_version_contradicts_tag,
    about_versions.engine_too_old_to_operate,
    about_versions.engine_newer_than_rules,
    about_versions.image_tag_moves,
    about_versions.model_revision_not_pinned,
    # Does the user's command line contradict the spec?
    about_arguments.argument_speculates,
    about_arguments.log_stats_disabled,
    about_arguments.argument_has_field,
    about_arguments.argument_is_operated,
    about_arguments.argument_needs_speculation,
    about_arguments.argument_not_split,
    about_arguments.argument_without_flag,
    about_arguments.argument_is_shell,
    about_arguments.argument_unknown,
    about_arguments.adapters_at_run_time,
    about_arguments.request_logging_on,
    about_environment.variable_malformed,
    about_environment.variable_repeated,
    about_environment.variable_reserved,
    about_environment.removed_engine_asked,
    about_environment.dead_engine_kept_alive,
    about_environment.development_mode,
    about_environment.token_in_plain_text,
    about_parallelism.pipeline_with_async_scheduling_on_v1,
    # Does the pod fit the engine?
    about_devices.too_few_devices,
    about_devices.idle_devices,
    about_devices.no_device_asked,
    about_devices.device_quantity_invalid,
    about_devices.claim_unknown,
    about_devices.claim_unused,
    about_nodes.nodes_not_in_this_version,
    about_nodes.nodes_do_not_divide,
    about_nodes.data_ranks_do_not_divide,
    about_nodes.tensor_ranks_span_nodes,
    about_nodes.nodes_need_multiprocessing,
    about_nodes.node_address_fixed,
    about_nodes.set_variable_reserved,
    about_nodes.claim_shared_by_nodes,
    about_devices.shared_memory_small,
    about_pods.mount_without_volume,
    about_pods.model_not_on_a_volume,
    about_pods.prompts_not_on_a_volume,
    about_pods.benchmark_sees_no_tokenizer,
    about_pods.offline_without_cache,
    about_pods.slo_between_buckets,
    # Are the candidates worth a benchmark?
    about_candidates.candidate_repeated,
    about_candidates.many_candidates,
)

PROPOSER_RULES: tuple[Rule[ProposerCase], ...] = (
    # Does this release have it?
    about_methods.method_not_in_this_version,
    about_keys.setting_not_in_this_version,
    about_keys.lossy_sampling,
    about_keys.extra_shadows_field,
    about_keys.extra_key_not_accepted,
    about_keys.extra_unverified,
    # Is it complete, and does it run as what it says?
    about_methods.tokens_needed_without_draft,
    about_methods.draft_name_changes_method,
    about_methods.draft_is_the_target,
    about_methods.draft_setting_without_effect,
    about_methods.padded_batch_needed,
    about_methods.suffix_needs_arctic_inference,
    about_methods.ngram_with_tools_needs_long_match,
    about_keys.heterogeneous_vocabulary_conflict,
    about_keys.local_argmax_skips_mapping,
    about_versions.draft_revision_not_pinned,
    about_pods.draft_not_on_a_volume,
    about_drafts.draft_context_too_long,
    about_drafts.draft_context_short,
    about_drafts.little_memory_for_draft,
    # Does the schedule hold?
    about_schedules.schedule_kills_engine,
    about_schedules.schedule_untried,
    about_schedules.schedule_ignored_with_data_parallel,
    about_schedules.schedule_ranges_overlap,
    about_schedules.schedule_may_collapse_throughput,
    # Does it go together with the rest of the engine?
    about_runtime.method_needs_gpu,
    about_runtime.cpu_engine_without_speculation,
    about_runtime.wrong_model_runner,
    about_runtime.async_scheduling_unsupported,
    about_runtime.async_scheduling_needs_padded_batch,
    about_runtime.watermark_conflict,
    about_runtime.logits_processors_unsupported,
    about_runtime.structured_backend_unsupported,
    about_runtime.fast_prefill_unsupported,
    about_runtime.batch_too_small_for_drafts,
    about_runtime.block_sampling_without_effect,
    about_runtime.adaptive_verification_conflict,
    about_runtime.ngram_gpu_needs_compilation,
    about_parallelism.draft_parallel_size_invalid,
    about_parallelism.draft_model_parallel_size_differs,
    about_parallelism.draft_topk_needs_one_rank,
    about_parallelism.pipeline_unsupported,
    about_parallelism.pipeline_doubtful,
    about_parallelism.pipeline_without_async_scheduling,
    about_parallelism.data_parallel_may_hang,
    # Has this release hurt others?
    known_faults.eagle_acceptance_decays,
    known_faults.eagle3_gain_halved,
    known_faults.dflash_accepts_nothing,
    known_faults.mtp_prefix_caching_inaccurate,
    known_faults.mtp_crashes_on_long_sequences,
    known_faults.structured_output_may_crash,
    known_faults.ngram_with_lora_may_crash,
    known_faults.acceptance_counted_wrong,
    known_faults.dual_batch_overlap_without_speculation,
)


def check(spec: DeploymentSpec) -> tuple[Finding, ...]:
    """Everything the rules say about the spec and all of its proposers, each finding once, shared ones first."""
    proposers = spec.speculation.proposers() if spec.speculation else ()
    found = [*check_shared(spec), *(one for proposer in proposers for one in check_proposer(spec, proposer))]
    return tuple(dict.fromkeys(found))


def check_shared(spec: DeploymentSpec) -> tuple[Finding, ...]:
    """What the rules say about what both arms share: a refusal here keeps the plain arm from starting too."""
    case = Case(spec)
    return tuple(finding for rule in SPEC_RULES for finding in rule.findings(case))


def check_proposer(spec: DeploymentSpec, proposer: Proposer) -> tuple[Finding, ...]:
    """What the rules say about one proposer of the spec; without the rules that hold for both arms."""
    case = ProposerCase(spec, proposer, proposer_path(spec, proposer))
    return tuple(finding for rule in PROPOSER_RULES for finding in rule.findings(case))
