// A planner whose inputs and answers can be recorded. Each method that changes the planner, or decides, writes a line
// after the call. Calls that the planner makes of itself follow from these, and are not written.
import type { ContainerId, MachineId, WorkspaceId } from '#shared/domain/ids.ts';
import { DEFAULT_SHARING } from '../../domain/shares.ts';
import type { Sharing, WorkspaceShare } from '../../domain/shares.ts';
import type { PlacementMachine } from './filter.ts';
import type { ClassFacts, FitClass, Item, Wanted } from './fit-class.ts';
import type { Holding } from './ledger.ts';
import type { Choice, Rejections } from './place.ts';
import { Planner } from './planner.ts';
import type { Step } from './planner.ts';
import type { Reclaimed, ReclaimFacts } from './reclaim.ts';
import { choiceLine, ClassNumbers, Encoder, maybeChoiceLine, reservedLine, stepLine } from './recording.ts';
import type { Call, Line, Tape, WantedLine } from './recording.ts';

interface Recorder {
  readonly tape: Tape;
  readonly encoder: Encoder;
  readonly classes: ClassNumbers;
  doubtful: ReadonlySet<MachineId>;
  /** Whether the last line asked whether the planner is busy: to ask again changes nothing. */
  askedBusy: boolean;
}

const NONE: ReadonlySet<MachineId> = new Set();

export class RecordedPlanner extends Planner {
  /** Machines to avoid, as they were named during a call; absent: nobody writes them down. */
  readonly #heard: { answers: ReadonlySet<MachineId>[] | undefined };
  #recorder: Recorder | undefined;
  #sharing: Sharing = DEFAULT_SHARING;
  #isInside = false;

  /** @param shunned - machines that take the container only where no other can */
  constructor(shunned: (wanted: Wanted) => ReadonlySet<MachineId> = () => NONE) {
    const heard: { answers: ReadonlySet<MachineId>[] | undefined } = { answers: undefined };
    super((wanted) => {
      const answer = shunned(wanted);
      heard.answers?.push(answer);
      return answer;
    });
    this.#heard = heard;
  }

  /** Forgets everything, and records from then on. All that the planner must know is told to it again afterwards. */
  record(tape: Tape): void {
    this.recordNoMore();
    this.clear();
    this.leaving.clearAll();
    this.doubtful = NONE;
    this.#recorder = {
      tape,
      encoder: new Encoder(),
      classes: new ClassNumbers(),
      doubtful: this.doubtful,
      askedBusy: false,
    };
    this.#write(this.#recorder, { do: 'setSharing', sharing: this.#sharing });
  }

  recordNoMore(): void {
    this.#recorder = undefined;
  }

  override setSharing(sharing: Sharing): void {
    this.#sharing = sharing;
    this.#call(() => super.setSharing(sharing), { do: 'setSharing', sharing });
  }

  override setShare(workspaceId: WorkspaceId, share: WorkspaceShare): void {
    this.#call(
      () => super.setShare(workspaceId, share),
      ({ encoder }) => ({ do: 'setShare', workspace: encoder.name('w', workspaceId), share }),
    );
  }

  override shareChanged(workspaceId: WorkspaceId): void {
    this.#call(
      () => super.shareChanged(workspaceId),
      ({ encoder }) => ({ do: 'shareChanged', workspace: encoder.name('w', workspaceId) }),
    );
  }

  override add(wanted: Wanted): Item | undefined {
    return this.#call(
      () => super.add(wanted),
      (recorder, item) => {
        if (item !== undefined) recorder.classes.of(item.fitClass);
        return { do: 'add', wanted: this.#wanted(recorder, wanted), got: item !== undefined };
      },
    );
  }

  override remove(id: ContainerId): void {
    this.#call(() => super.remove(id), { do: 'remove', id });
  }

  override classOf(wanted: Wanted): FitClass {
    return this.#call(
      () => super.classOf(wanted),
      (recorder, fitClass) => ({
        do: 'classOf',
        wanted: this.#wanted(recorder, wanted),
        got: recorder.classes.of(fitClass),
      }),
    );
  }

  override get isBusy(): boolean {
    // To look for the oldest container drops offers that nobody takes, so the question is an input, too.
    if (this.#recorder?.askedBusy === true) return super.isBusy;
    return this.#call(
      () => super.isBusy,
      (_recorder, got) => ({ do: 'isBusy', got }),
    );
  }

  override setMachine(machine: PlacementMachine): void {
    this.#call(
      () => super.setMachine(machine),
      ({ encoder }) => ({ do: 'setMachine', id: machine.machineId, changed: encoder.machine(machine) }),
    );
  }

  override deleteMachine(id: MachineId): void {
    this.#call(
      () => super.deleteMachine(id),
      ({ encoder }) => {
        encoder.gone(id);
        return { do: 'deleteMachine', id };
      },
    );
  }

  override hold(id: ContainerId, holding: Holding): void {
    this.#call(
      () => super.hold(id, holding),
      ({ encoder }) => ({ do: 'hold', id, holding: encoder.holding(holding) }),
    );
  }

  override release(id: ContainerId, workspaceId: WorkspaceId): void {
    this.#call(
      () => super.release(id, workspaceId),
      ({ encoder }) => ({ do: 'release', id, workspace: encoder.name('w', workspaceId) }),
    );
  }

  override limitsChanged(workspaceId: WorkspaceId): void {
    this.#call(
      () => super.limitsChanged(workspaceId),
      ({ encoder }) => ({ do: 'limitsChanged', workspace: encoder.name('w', workspaceId) }),
    );
  }

  override imagesChanged(): void {
    this.#call(() => super.imagesChanged(), { do: 'imagesChanged' });
  }

  override forgetBlocks(): void {
    this.#call(() => super.forgetBlocks(), { do: 'forgetBlocks' });
  }

  override clear(): void {
    this.#call(() => super.clear(), { do: 'clear' });
  }

  override forgetFacts(): void {
    this.#call(() => super.forgetFacts(), { do: 'forgetFacts' });
  }

  override know(fitClass: FitClass, facts: ClassFacts): void {
    this.#call(
      () => super.know(fitClass, facts),
      ({ encoder, classes }) => ({ do: 'know', class: classes.of(fitClass), facts: encoder.facts(facts) }),
    );
  }

  override next(): Step | undefined {
    return this.#call(
      () => super.next(),
      ({ classes }, step) => ({ do: 'next', got: stepLine(step, (one) => classes.of(one)) }),
    );
  }

  override chooseNew(wanted: readonly Wanted[], facts: ClassFacts | undefined): readonly (Choice | undefined)[] {
    return this.#call(
      () => super.chooseNew(wanted, facts),
      (recorder, choices) => ({
        do: 'chooseNew',
        wanted: wanted.map((one) => this.#wanted(recorder, one)),
        ...(facts === undefined ? {} : { facts: recorder.encoder.facts(facts) }),
        got: choices.map(maybeChoiceLine),
      }),
    );
  }

  override take(wanted: Wanted, choice: Choice): void {
    this.#call(
      () => super.take(wanted, choice),
      (recorder) => ({ do: 'take', wanted: this.#wanted(recorder, wanted), choice: choiceLine(choice) }),
    );
  }

  override reserve(nowMs: number | null): number | undefined {
    return this.#call(
      () => super.reserve(nowMs),
      (_recorder, againAtMs) => ({ do: 'reserve', nowMs, got: reservedLine(this, againAtMs) }),
    );
  }

  override reclaim(facts: ReclaimFacts | null): Reclaimed {
    return this.#call(
      () => super.reclaim(facts),
      (_recorder, got) => ({ do: 'reclaim', facts, got }),
    );
  }

  override refusalsOf(fitClass: FitClass, nowMs: number): Rejections {
    return this.#call(
      () => super.refusalsOf(fitClass, nowMs),
      ({ classes }, got) => ({ do: 'refusalsOf', class: classes.of(fitClass), nowMs, got }),
    );
  }

  #wanted(recorder: Recorder, wanted: Wanted): WantedLine {
    return recorder.encoder.wanted(wanted, (template) => this.#write(recorder, template));
  }

  #call<T>(run: () => T, told: Call | ((recorder: Recorder, result: T) => Call)): T {
    const recorder = this.#recorder;
    if (recorder === undefined || this.#isInside) return run();
    if (recorder.doubtful !== this.doubtful) {
      recorder.doubtful = this.doubtful;
      this.#write(recorder, { do: 'doubtful', machines: [...this.doubtful] });
    }
    this.#isInside = true;
    const answers: ReadonlySet<MachineId>[] = [];
    this.#heard.answers = answers;
    let result: T;
    try {
      result = run();
    } finally {
      this.#isInside = false;
      this.#heard.answers = undefined;
    }
    const line = typeof told === 'function' ? told(recorder, result) : told;
    const shunned = answers.some(({ size }) => size > 0) ? { shunned: answers.map((one) => [...one]) } : {};
    this.#write(recorder, { ...line, ...shunned });
    recorder.askedBusy = line.do === 'isBusy';
    return result;
  }

  #write(recorder: Recorder, line: Line): void {
    if (!recorder.tape.write(line)) this.recordNoMore();
  }
}
