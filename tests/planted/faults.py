"""Faults that were planted in the source on purpose. Each is caught by some suite; `make soak` shows it.

A suite that no longer catches its fault has gone blind, and a text that is no longer found has to be planted anew.
"""

from typing import NamedTuple


class Planted(NamedTuple):
    """One deliberate fault: in which file, which text becomes which, and which tests have to fail."""

    name: str
    file: str
    before: str
    after: str
    tests: str


MACHINE = "tests/property/test_machine_presets.py"
SEEDS = "tests/sim/test_faults.py"
LOOP = "tests/unit/control/test_loop.py"
CONTRACT = "tests/contract"
PROMISES = "tests/contract/test_promises.py -k"
FENCE = "tests/contract/test_local_fence.py"
PINS = "tests/property/test_machine_pins.py"
TURNS = "tests/unit/core/test_turns.py"
LIFTS = "tests/unit/core/test_why.py tests/property/test_lifts.py"

FAULTS = [
    Planted(
        "an attempt whose image is pulled for long is taken for lost",
        "control/loop/driving.py",
        "            if report.phase is not Phase.UNKNOWN:\n",
        "            if report.phase not in (Phase.UNKNOWN, Phase.STARTING):\n",
        LOOP,
    ),
    Planted(
        "a job whose image cannot be had runs all the same",
        "testing/engine.py",
        "        if why:\n            self._finish(entry, Outcome.FAILED, NO_IMAGE, why, ",
        "        if False:\n            self._finish(entry, Outcome.FAILED, NO_IMAGE, why, ",
        "tests/contract/test_sim_faults.py",
    ),
    Planted(
        "an image that cannot be had is no reason",
        "engines/node/attempt/tasks.py",
        "            raise NotReady(Failure(images.NOT_RUN, str(failed), failed.for_good)) from failed\n",
        '            raise NotReady(Failure(images.NOT_RUN, "it cannot start")) from failed\n',
        PROMISES + " image",
    ),
    Planted(
        "a job's memory is said to be held, and is not",
        "engines/local/translate.py",
        '"memory_mib": sum([part.memory_mib for part in parts]) if place.limits else 0,',
        '"memory_mib": 0,',
        PROMISES + " fence",
    ),
    Planted(
        "slices of other jobs stay in a job's view",
        "engines/local/fencing.py",
        'found["only"] = {self._devices: sorted({*uuids, *slices})}',
        'found["only"] = {self._devices: sorted({*uuids, *slices, *os.listdir(self._devices)})}',
        FENCE,
    ),
    Planted(
        "every user may look into the images of all",
        "engines/local/images.py",
        "            os.mkdir(store, 0o700)\n",
        "            os.mkdir(store, 0o755)\n",
        FENCE,
    ),
    Planted(
        "a client that takes nothing holds its job up",
        "engines/node/visits/keeper.py",
        "            if client.unsent and now >= client.took_at + self.limits.stalled_s:\n"
        "                self._drop(client)\n",
        "            pass\n",
        "tests/unit/engines/test_terminals.py",
    ),
    Planted(
        "the heads of files lead out of the named place",
        "engines/node/visits/copying.py",
        '        if any([part in ("", ".", "..") or "\\0" in part for part in parts]):\n',
        "        if False:\n",
        "tests/unit/engines/test_terminals.py",
    ),
    Planted(
        "an interactive shell is told to stop in a way that it does not heed",
        "engines/node/attempt/crew.py",
        "            signal_all(live, signal.SIGHUP, group=True)\n",
        "            pass\n",
        "tests/contract/test_local_survival.py",
    ),
    Planted(
        "a terminal keeps the size that it began with",
        "engines/node/visits/keeper.py",
        "            set_size(self.master, size[0], size[1])\n",
        "            pass\n",
        "tests/unit/engines/test_terminals.py",
    ),
    Planted(
        "any user comes into the jobs of other tenants",
        "api/handlers/terminals.py",
        "        if not person.may(Action.ENTER_JOB, tenant, owner):\n",
        "        if False:\n",
        "tests/unit/api/test_rights_matrix.py",
    ),
    Planted(
        "pages of other sites come into jobs",
        "api/edge/peers.py",
        '        if origin and (origin.partition(b"://")[2] or b"null") not in (host, forwarded):\n',
        "        if False:\n",
        "tests/e2e/test_terminals.py -k socket_refuses",
    ),
    Planted(
        "an image is removed under the job that runs in it",
        "engines/node/containers/image.py",
        "        fcntl.flock(fd, fcntl.LOCK_SH)\n",
        "        pass\n",
        "tests/contract/test_local_images.py -k no_job_needs",
    ),
    Planted(
        "what a gang leaves behind on a node has no grace",
        "engines/node/slurm/spread.py",
        "                    self.stopping = number == signal.SIGTERM\n",
        "                    self.stopping = False\n",
        "tests/unit/engines/slurm/test_node_code.py -k grace",
    ),
    Planted(
        "a gang whose turn has come is left in its user's line and starves",
        "core/state/fold.py",
        "    state.queue.take_turns()\n",
        "",
        TURNS,
    ),
    Planted(
        "a gang that was stopped after its turn waits for another one",
        "core/jobs/queue.py",
        "        if not turn_ms or boost or record.job.spec.ask.tasks == 1:\n",
        "        if not turn_ms or boost or record.job.spec.ask.tasks == 1 or record.attempt:\n",
        TURNS,
    ),
    Planted(
        "a gang whose turn has come goes before the other teams as well",
        "core/jobs/queue.py",
        "        self._turned[record.id] = team\n        return team\n",
        "        self._turned[record.id] = ROOT\n        return ROOT\n",
        TURNS,
    ),
    Planted(
        "part of a gang is placed",
        "core/fleet/placing.py",
        "    return tuple(grants) if left == 0 else None\n",
        "    return tuple(grants) or None\n",
        MACHINE,
    ),
    Planted(
        "memory is not looked at when a start is checked",
        "core/fleet/nodes.py",
        "if cpu_milli > self.cpu_free[number] or memory_mib > self.memory_free[number]:",
        "if cpu_milli > self.cpu_free[number]:",
        "tests/unit/core/test_requests.py",
    ),
    Planted(
        "what ends is not taken off its tenant",
        "core/state/state.py",
        "        usage.jobs -= 1\n",
        "",
        MACHINE,
    ),
    Planted(
        "a promise stands though something started on its nodes",
        "core/schedule/reserve.py",
        "not self.promise.where.keys().isdisjoint(touched[self._read :])",
        "False",
        MACHINE + " tests/unit/core/test_backfill.py",
    ),
    Planted(
        "jobs pass a promise though they outlast it",
        "policies/backfill/easy.py",
        "if promised is None or record.estimate_ms <= self.window_ms:",
        "if promised is None or record.estimate_ms <= 2 * self.window_ms:",
        "tests/property/test_promises.py tests/unit/core/test_backfill.py",
    ),
    Planted(
        "victims are taken before their minimum run time",
        "core/schedule/running_jobs.py",
        "victim.started_ms + (victim.klass.min_run_ms << min(victim.preemptions, _DOUBLINGS_MAX))",
        "victim.started_ms",
        MACHINE + " tests/unit/core/test_preemption.py",
    ),
    Planted(
        "what it costs to stop a job is not looked at again when it saves its work",
        "core/schedule/victims.py",
        "                until_ms = record.saves_ms(now_ms)\n",
        "                until_ms = NEVER_MS\n",
        "tests/unit/core/test_victims.py",
    ),
    Planted(
        "the cheapest node is not the first one",
        "core/schedule/victims.py",
        "growth, floor = smallest, least",
        "growth, floor = smallest, 2 * least",
        "tests/unit/core/test_victims.py",
    ),
    Planted(
        "deciding leaves a draft behind",
        "core/schedule/passes.py",
        "        while self._undo:\n",
        "        while len(self._undo) > 1:\n",
        MACHINE,
    ),
    Planted(
        "the fold forgets the end of a suspension",
        "core/state/fold.py",
        "    state.expect_end(record, record.end_ms - NO_LIMIT_MS + frozen_ms)\n",
        "    state.expect_end(record, record.end_ms - NO_LIMIT_MS)\n",
        MACHINE + " tests/unit/core",
    ),
    Planted(
        "periods are not closed by events",
        "core/state/fold.py",
        "    state.tenants.pass_time(at_ms)\n",
        "",
        MACHINE + " tests/unit/core/test_fair_share.py",
    ),
    Planted(
        "the core reads the clock",
        "core/schedule/decide.py",
        "from collections.abc import Callable, Sequence\n",
        "import time\nfrom collections.abc import Callable, Sequence\n",
        "tests/architecture",
    ),
    Planted(
        "GPUs are free as soon as a stop is asked for",
        "core/state/fold.py",
        "    record.phase = AttemptState.STOPPING\n",
        "    record.phase = AttemptState.STOPPING\n    state.nodes.give(record.grants)\n",
        MACHINE,
    ),
    Planted(
        "one key for all attempts",
        "control/replica/labels.py",
        '    return f"{yard}-{submitted_ms:x}-{job_id}-{attempt}"\n',
        '    return f"{yard}-{submitted_ms:x}-{job_id}-1"\n',
        LOOP,
    ),
    Planted(
        "a start is assumed to have worked",
        "control/loop/act.py",
        "        elif record.phase is AttemptState.STARTING and report.phase is Phase.UNKNOWN:\n"
        '            if pace.due("start", key, now_ms):\n',
        "        elif record.phase is AttemptState.STARTING and report.phase is Phase.UNKNOWN:\n"
        '            if pace.due("start", key, now_ms) and ("start", key) not in pace._next_ms:\n',
        LOOP,
    ),
    Planted(
        "orphans are never stopped",
        "control/loop/act.py",
        "            halts.append(StopRequest(key, Outcome.CANCELLED, 0))\n",
        "            pass\n",
        LOOP,
    ),
    Planted(
        "unknown is read as success",
        "control/loop/observe.py",
        "        events.append(AttemptUnknown(now_ms, job_id, attempt))\n",
        "        events.append(AttemptEnded(now_ms, job_id, attempt, Outcome.COMPLETED))\n",
        SEEDS,
    ),
    Planted(
        "unknown is taken for gone at once",
        "control/loop/loop.py",
        "            if key in seen.barred:\n",
        "            if key in seen.barred or record.phase is AttemptState.UNKNOWN:\n",
        SEEDS,
    ),
    Planted(
        "an unsure stop is taken for done",
        "control/loop/driving.py",
        "            if reply.answer is Answer.BARRED:\n",
        "            if reply.answer is not Answer.REFUSED:\n",
        SEEDS,
    ),
    Planted(
        "a deposed leader may write",
        "testing/memory_store.py",
        "        if epoch is not None and epoch != self.epoch:\n",
        "        if epoch is None:\n",
        SEEDS,
    ),
    Planted(
        "a failed write stays in the replica",
        "control/replica/replica.py",
        "                    self._wrong = True\n",
        "                    pass\n",
        "tests/unit/control/test_replica.py",
    ),
    Planted(
        "a cancellation is lost when its node goes first",
        "core/state/fold.py",
        "    if record.cause is StopCause.CANCEL or record.wanted is Verb.CANCEL:\n        return False\n",
        "",
        MACHINE + " tests/unit/core " + SEEDS,
    ),
    Planted(
        "a stop leaves no mark for a start that is on its way",
        "testing/engine.py",
        "            self._claims.add(halt.key)\n            return Reply(Answer.BARRED)\n",
        "            return Reply(Answer.BARRED)\n",
        SEEDS + " tests/contract",
    ),
    Planted(
        "a key may be claimed twice",
        "engines/local/attempt/supervisor.py",
        "            mine = files.create(files.CLAIM, claim, durable=False)\n",
        "            mine = files.create(files.CLAIM, claim, durable=False) or True\n",
        CONTRACT,
    ),
    Planted(
        "a reused pid is taken for the supervisor",
        "engines/machine/processes.py",
        "stat is not None and stat.ticks == identity.ticks and not is_gone",
        "stat is not None and not is_gone",
        CONTRACT,
    ),
    Planted(
        "another boot is not noticed",
        "engines/machine/processes.py",
        "    if identity.boot != boot or identity.pid <= 0:\n"
        "        return False\n"
        "    stat = read_stat(identity.pid)\n",
        "    if identity.pid <= 0:\n        return False\n    stat = read_stat(identity.pid)\n",
        CONTRACT,
    ),
    Planted(
        "an attempt that nobody ran is read as success",
        "engines/local/watching.py",
        "            return AttemptReport(key, Phase.UNKNOWN)\n"
        "        return self._settle(key, folder, None, 0, _LOST_BOOT)",
        "            return AttemptReport(key, Phase.ENDED, Outcome.COMPLETED)\n"
        "        return self._settle(key, folder, None, 0, _LOST_BOOT)",
        CONTRACT,
    ),
    Planted(
        "a stop that was told is taken for a stop that is over",
        "control/loop/driving.py",
        "            if reply.answer is Answer.BARRED:\n",
        "            if reply.answer in (Answer.BARRED, Answer.DONE):\n",
        LOOP,
    ),
    Planted(
        "a blocker is named that nobody would miss",
        "core/explain/why.py",
        "                if self._trials.starts(_lifts(rest)):\n",
        "                if not rest and self._trials.starts(_lifts(rest)):\n",
        "tests/property/test_lifts.py",
    ),
    Planted(
        "jobs ahead that would take the room are not named",
        "core/explain/why.py",
        "            if self._add(blocking_reasons(trial, number)):\n",
        "            if number > 9 and self._add(blocking_reasons(trial, number)):\n",
        LIFTS,
    ),
    Planted(
        "a limit is to be raised by a little less than it takes",
        "core/explain/quota_reasons.py",
        "RaiseLimit(path, key, used + milli)",
        "RaiseLimit(path, key, used + milli - 1)",
        LIFTS,
    ),
    Planted(
        "a lift is tried out otherwise than it reads",
        "core/explain/what_if.py",
        "                events += [JobCancelled(at_ms, each) for each in job_ids]\n",
        "                events += [JobCancelled(at_ms, each) for each in job_ids[:1]]\n",
        LIFTS,
    ),
    Planted(
        "percentages are not worked out anew when the fleet grows",
        "core/state/fold_fleet.py",
        "    state.recompile()\n    state.refit_quotas()\n",
        "    state.recompile()\n",
        f"tests/unit/core/test_percentages.py {MACHINE}",
    ),
    Planted(
        "a percentage is rounded down to a thousandth of a GPU",
        "core/quota/percentages.py",
        "// HUNDRED_PERCENT_MILLI * MILLI",
        "* MILLI // HUNDRED_PERCENT_MILLI",
        f"tests/unit/core/test_percentages.py {MACHINE}",
    ),
    Planted(
        "a layout is pinned over slices that are in use",
        "core/explain/layout_plan.py",
        "    used = nodes.slices_used.get(number, {}).get(gpu, ())\n",
        "    used: Held = ()\n",
        PINS,
    ),
    Planted(
        "slices in use are not minded when a layout is laid out",
        "core/explain/layout_plan.py",
        "        fitted = fit(geometry, (*used, *kept), names)\n",
        "        fitted = fit(geometry, kept, names)\n",
        PINS,
    ),
    Planted(
        "a GPU is pinned without a look at the jobs on it",
        "core/explain/layout_plan.py",
        "    if pin_flaw(nodes, number, gpu, held):\n",
        "    if pin_flaw(nodes, number, gpu, held) and not held:\n",
        PINS,
    ),
    Planted(
        "a GPU that is pinned to slices is given as a whole one",
        "core/fleet/nodes.py",
        "        if found.held:\n            self.take(",
        "        if not found:\n            self.take(",
        PINS,
    ),
    Planted(
        "a slice of a pinned GPU is given twice",
        "core/fleet/mig_placing.py",
        " if place.profile == profile and place not in held]",
        " if place.profile == profile]",
        PINS,
    ),
    Planted(
        "a GPU that is pinned whole is cut",
        "core/fleet/mig_placing.py",
        "            if gpu in pins:\n                able",
        "            if gpu in pins and pins[gpu].held:\n                able",
        PINS,
    ),
    Planted(
        "GPUs of the reserve are cut",
        "core/fleet/mig_placing.py",
        "    return count_whole_free(nodes) - nodes.whole_reserve if",
        "    return count_whole_free(nodes) if",
        PINS,
    ),
    Planted(
        "jobs are stopped so that others stay whole",
        "core/schedule/preempt.py",
        "note_before_force(nodes) if record.shape.profile else None",
        "None",
        "tests/unit/core/test_slicing.py",
    ),
    Planted(
        "a GPU is valued where a slice is kept that another still lies on",
        "packing/slices/value_index.py",
        " or gpu in pins or not cards.fit_together(gpu):",
        " or gpu in pins:",
        "tests/unit/packing/test_slices.py",
    ),
    Planted(
        "a slice is put beside a share that is being stopped",
        "core/fleet/mig_book.py",
        "        return own == MILLI - _booked(self.geometry, held)\n",
        "        return own >= 0\n",
        PINS,
    ),
    Planted(
        "a share starts beside a slice that is being stopped",
        "core/fleet/nodes.py",
        "    return mask if cut is None else mask | cut_mask(nodes, number)",
        "    return mask",
        "tests/unit/core/test_slicing.py",
    ),
    Planted(
        "a layout that was not made is taken for made",
        "core/fleet/nodes.py",
        "made=not why, why",
        "made=True, why",
        PINS,
    ),
    Planted(
        "a job sees the devices of all GPUs",
        "engines/local/fencing.py",
        'found["only"] = {self._devices: sorted({*uuids, *slices})}',
        'found["only"] = {self._devices: sorted(os.listdir(self._devices))}',
        "tests/contract/test_local_fence.py",
    ),
    Planted(
        "jobs share one /dev/shm",
        "engines/node/attempt/fence.py",
        '    if fence.get("shm"):\n',
        "    if False:\n",
        "tests/contract/test_local_fence.py",
    ),
    Planted(
        "the kernel refuses no device",
        "engines/local/attempt/devices.py",
        "    refuse = [_step(_SET, 0, value=0), _step(_EXIT)]\n",
        "    refuse = [_step(_SET, 0, value=1), _step(_EXIT)]\n",
        "tests/unit/engines/test_fence.py",
    ),
    Planted(
        "a job that has failed by itself gets the end of a stop",
        "engines/node/attempt/runner.py",
        "        if self.verdict or self.failure or self.hands.failed or (",
        "        if self.verdict or (",
        "tests/unit/engines/test_runner.py",
    ),
    Planted(
        "what outlives its shell is killed without its grace",
        "engines/node/attempt/runner.py",
        "        return bool(self.hands.lingers())\n",
        "        return False\n",
        "tests/unit/engines/test_runner.py",
    ),
    Planted(
        "a time limit runs on while a job is frozen",
        "engines/node/attempt/runner.py",
        "        self.limit_at += lost_s\n",
        "        pass\n",
        "tests/unit/engines/test_runner.py",
    ),
    Planted(
        "the tasks of a gang go on without the one that failed",
        "engines/node/attempt/runner.py",
        "        if self.hands.alive() and not self.verdict:\n",
        "        if False:\n",
        "tests/unit/engines/test_runner.py",
    ),
    Planted(
        "the fence leaves the capabilities of other slices in sight",
        "engines/node/attempt/fence.py",
        '    for folder in sorted(fence.get("only", {})):\n',
        "    for folder in ():\n",
        "tests/unit/engines/test_fence.py",
    ),
    Planted(
        "a budget forgets what running jobs may still spend",
        "core/quota/budgets.py",
        "        return self.amount - self.spent - self.committed\n",
        "        return self.amount - self.spent\n",
        "tests/unit/core/test_budgets.py",
    ),
    Planted(
        "a day that a budget dropped is counted on",
        "core/quota/budgets.py",
        "for key, part in self.parts.items() if key[0] >= first}",
        "for key, part in self.parts.items()}",
        "tests/unit/core/test_budgets.py",
    ),
    Planted(
        "the trail does not say who came into a job",
        "control/views/audit.py",
        "NameUnbound, MonthClosed, JobEntered,\n",
        "NameUnbound, MonthClosed,\n",
        "tests/unit/control/test_audit.py",
    ),
    Planted(
        "what a job says of its own image is believed as it is",
        "engines/node/containers/image.py",
        "    if not isinstance(found, dict):\n        return {}\n    texts",
        "    if isinstance(found, dict):\n        return found\n    texts",
        "tests/unit/engines/test_podman.py",
    ),
]
