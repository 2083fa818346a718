"""The names of all scenarios, and those that are not run here, with the reason."""

NAMES = {
    # Creation and identity
    1: "create_ps_worker", 2: "create_ring", 3: "single_replica", 4: "create_twice", 5: "already_exists_ours",
    6: "already_exists_foreign", 7: "same_name_new_uid", 8: "user_template_kept", 9: "template_invalid",
    # Validation
    10: "reject_ring_with_ps", 11: "reject_bad_name_len", 12: "reject_min_gt_max",
    13: "reject_replicas_out_of_range", 14: "reject_strategy_change", 15: "reject_managedBy_change",
    16: "scale_path_validated", 17: "crd_plain_apply",
    # Elastic
    18: "worker_up", 19: "worker_down", 20: "ps_up", 21: "ps_down_drains", 22: "scale_storm",
    23: "scale_up_during_restart", 24: "scale_down_then_up_same_index", 25: "scale_to_min_by_preemption",
    26: "kubectl_scale_roundtrip", 27: "drop_chosen_pod",
    # Failure and restart
    28: "exit_1_permanent", 29: "exit_137_retry", 30: "backoff_limit_across_recreate", 31: "evicted_not_counted",
    32: "pod_deleted_by_user", 33: "ring_restart_as_unit", 34: "ps_lost_restores", 35: "stuck_terminating",
    36: "image_pull_backoff", 37: "oom_killed", 38: "pod_unknown_then_back",
    # Completion and clean-up
    39: "success_chief", 40: "ps_removed_on_success", 41: "finished_pod_deleted_not_recreated", 42: "ttl",
    43: "deadline_without_events", 44: "deadline_paused_when_suspended", 45: "delete_foreground",
    46: "finalizer_crash",
    # Control
    47: "suspend_at_creation", 48: "suspend_running", 49: "managed_by_other", 50: "generation_observed",
    # API machinery
    51: "watch_410", 52: "watch_drop_every_2s", 53: "apiserver_restart", 54: "apiserver_429_503",
    55: "status_conflict_409", 56: "create_timeout_but_applied", 57: "delayed_watch_5s",
    58: "bookmark_only_stream", 59: "list_paged_token_expired", 60: "half_open_tcp", 61: "401_403",
    62: "leader_failover_mid_create", 63: "old_leader_paused_resumes", 64: "kill_9_at_every_write",
    # Observability and scale
    65: "metrics_after_restart", 66: "metric_cardinality", 67: "event_once", 68: "steady_state_zero_writes",
    69: "1000_jobs_x_8", 70: "one_job_5000_pods", 71: "rbac_minimal", 72: "dashboard_queries_resolve",
    # Further ones
    73: "quota_exceeded", 74: "namespace_deleted", 75: "steps_change",
    76: "sigterm_mid_create", 77: "sigterm_without_answers",
    78: "shared_objects_return", 79: "volume_claims", 80: "server_without_room",
    81: "other_http_library",
}

BENCH = "a measurement: `make bench-operator` runs it"
PENDING = {}
ELSEWHERE = {69: BENCH, 70: BENCH}


def title(number):
    return f"scenario_{number:02}_{NAMES[number]}"


def problems(found, also_missing=()):
    """What is wrong with the functions found, as lines: {number: [names]}. A number is written down, pending,
    or run elsewhere: exactly one of these; `also_missing` are excused."""
    told = []
    for number, name in sorted(NAMES.items()):
        names = found.get(number, [])
        excused = number in PENDING or number in ELSEWHERE
        if len(names) > 1:
            told.append(f"{title(number)} exists {len(names)} times")
        elif not names and not excused and number not in also_missing:
            told.append(f"{title(number)} is missing")
        elif names and number in ELSEWHERE:
            told.append(f"{title(number)} is run elsewhere: {ELSEWHERE[number]}")
        elif names and names[0] != title(number):
            told.append(f"{names[0]} should be called {title(number)}")
    told += [f"{names[0]}: there is no scenario {number}" for number, names in sorted(found.items())
             if number not in NAMES]
    return told
