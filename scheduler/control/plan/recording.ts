// Lines of a recording: what the planner was told and asked, in that order, and what it answered. One line is one JSON
// object, whose `do` names the method. Names of workspaces, queues, pools, images, volumes
// and labels are replaced by numbers, so that a stranger may have a recording.
// Ids of containers, machines and devices are random, and stay: the choice among equal machines is made by them.
import type { ContainerId, MachineId, WorkspaceId } from '#shared/domain/ids.ts';
import type { LabelRules, Labels, LabelValues } from '#shared/domain/labels.ts';
import type { Sharing, WorkspaceShare } from '../../domain/shares.ts';
import type { PlacementMachine } from './filter.ts';
import type { ClassFacts, FitClass, Wanted } from './fit-class.ts';
import type { Holding } from './ledger.ts';
import type { Choice, Rejections } from './place.ts';
import type { Planner, Step } from './planner.ts';
import type { Reclaimed, ReclaimFacts } from './reclaim.ts';

/** Number of the format. A recording of another one is not replayed. */
export const RECORDING_VERSION = 1;

/** Where the lines of a recording go. */
export interface Tape {
  /** @returns false: the recording is over, and nothing more is taken */
  write(line: Line): boolean;
}

/** A container that waits: its id, the time when it was made, and the number of the template that has the rest. */
export type WantedLine = readonly [ContainerId, number, number];
type Template = Omit<Wanted, 'id' | 'createdAtMs'>;
type MachineFields = Partial<{
  readonly [Field in keyof PlacementMachine]: PlacementMachine[Field] extends ReadonlySet<infer One>
    ? readonly One[]
    : PlacementMachine[Field];
}>;
interface FactsLine {
  readonly quota?: ClassFacts['quota'];
  readonly homes: readonly MachineId[];
  readonly image: { readonly machines: readonly MachineId[]; readonly inRegistry: boolean } | null;
}
interface ChoiceLine {
  readonly on: MachineId;
  readonly gpus: readonly string[];
}
type StepLine =
  | { readonly ask: readonly number[] }
  | { readonly refused: ContainerId }
  | ({ readonly chosen: ContainerId } & ChoiceLine)
  | null;

/** When to look again, and each reserved machine with its container and devices. */
type ReservedLine = readonly [number | null, ...(readonly [MachineId, ContainerId, ...string[]])[]];

/** A call of the planner. `got` is its answer, where there is one. */
export type Call =
  | { readonly do: 'template'; readonly number: number; readonly fields: Template }
  | { readonly do: 'doubtful'; readonly machines: readonly MachineId[] }
  | { readonly do: 'add'; readonly wanted: WantedLine; readonly got: boolean }
  | { readonly do: 'remove'; readonly id: ContainerId }
  | { readonly do: 'classOf'; readonly wanted: WantedLine; readonly got: number }
  | { readonly do: 'isBusy'; readonly got: boolean }
  | { readonly do: 'setMachine'; readonly id: MachineId; readonly changed: MachineFields }
  | { readonly do: 'deleteMachine'; readonly id: MachineId }
  | { readonly do: 'hold'; readonly id: ContainerId; readonly holding: Holding }
  | { readonly do: 'release'; readonly id: ContainerId; readonly workspace: WorkspaceId }
  | { readonly do: 'limitsChanged' | 'shareChanged'; readonly workspace: WorkspaceId }
  | { readonly do: 'setSharing'; readonly sharing: Sharing }
  | { readonly do: 'setShare'; readonly workspace: WorkspaceId; readonly share: WorkspaceShare }
  | { readonly do: 'imagesChanged' | 'forgetBlocks' | 'clear' | 'forgetFacts' }
  | { readonly do: 'know'; readonly class: number; readonly facts: FactsLine }
  | { readonly do: 'next'; readonly got: StepLine }
  | {
      readonly do: 'chooseNew';
      readonly wanted: readonly WantedLine[];
      readonly facts?: FactsLine;
      readonly got: readonly (ChoiceLine | null)[];
    }
  | { readonly do: 'reserve'; readonly nowMs: number | null; readonly got: ReservedLine }
  | { readonly do: 'reclaim'; readonly facts: ReclaimFacts | null; readonly got: Reclaimed }
  | { readonly do: 'take'; readonly wanted: WantedLine; readonly choice: ChoiceLine }
  | { readonly do: 'refusalsOf'; readonly class: number; readonly nowMs: number; readonly got: Rejections };

/** `shunned`: the machines to avoid, as they were named during the call; absent: none. */
export type Line = Call & { readonly shunned?: readonly (readonly MachineId[])[] };

/** Most templates that are looked for again, so that a recording of any length takes little memory. */
const MOST_TEMPLATES = 10_000;

/** Turns what the planner is told into parts of lines. */
export class Encoder {
  readonly #names = new Map<string, string>();
  readonly #counts = new Map<string, number>();
  readonly #templates = new Map<string, number>();
  readonly #machines = new Map<MachineId, Map<string, string>>();
  #madeTemplates = 0;

  /** A number in the place of a name; an empty name stays empty. */
  name<Name extends string>(kind: 'w' | 'q' | 'p' | 'i' | 'v' | 'k' | 'l', name: Name): Name {
    if (name === '') return name;
    const key = `${kind} ${name}`;
    let alias = this.#names.get(key);
    if (alias === undefined) {
      const count = (this.#counts.get(kind) ?? 0) + 1;
      this.#counts.set(kind, count);
      this.#names.set(key, (alias = `${kind}${count}`));
    }
    return alias as Name;
  }

  /** @param newTemplate - gets a template that is not in the recording yet */
  wanted({ id, createdAtMs, ...rest }: Wanted, newTemplate: (line: Line) => void): WantedLine {
    const fields: Template = {
      ...rest,
      workspaceId: this.name('w', rest.workspaceId),
      queue: this.name('q', rest.queue),
      poolName: this.name('p', rest.poolName),
      image: this.name('i', rest.image),
      builtImage: this.name('i', rest.builtImage),
      caches: rest.caches.map((one) => this.name('v', one)),
      volumes: rest.volumes.map((one) => this.name('v', one)),
      ...(rest.labels === undefined ? {} : { labels: this.#rules(rest.labels) }),
    };
    const key = JSON.stringify(fields);
    let number = this.#templates.get(key);
    if (number === undefined) {
      if (this.#templates.size >= MOST_TEMPLATES) this.#templates.clear();
      number = this.#madeTemplates;
      this.#madeTemplates += 1;
      this.#templates.set(key, number);
      newTemplate({ do: 'template', number, fields });
    }
    return [id, createdAtMs, number];
  }

  /** The fields of the machine that changed since it was told last. */
  machine(machine: PlacementMachine): MachineFields {
    const { machineId } = machine;
    let told = this.#machines.get(machineId);
    if (told === undefined) this.#machines.set(machineId, (told = new Map()));
    const plain: MachineFields = {
      ...machine,
      poolName: this.name('p', machine.poolName),
      poolOwner: machine.poolOwner === null ? null : this.name('w', machine.poolOwner),
      volumeDrivers: [...machine.volumeDrivers],
      images: [...machine.images].map((one) => this.name('i', one)),
      caches: [...machine.caches].map((one) => this.name('v', one)),
      ...(machine.labels === undefined ? {} : { labels: this.#labels(machine.labels) }),
    };
    const changed = Object.entries(plain).filter(([field, value]) => {
      const text = JSON.stringify(value);
      if (told.get(field) === text) return false;
      told.set(field, text);
      return true;
    });
    return Object.fromEntries(changed);
  }

  #labels(labels: Labels): Labels {
    return Object.fromEntries(
      Object.entries(labels).map(([key, value]) => [this.name('k', key), this.name('l', value)]),
    );
  }

  #rules({ require, forbid, prefer, spread }: LabelRules): LabelRules {
    const values = (by: LabelValues): LabelValues =>
      Object.fromEntries(
        Object.entries(by).map(([key, list]) => [this.name('k', key), list.map((one) => this.name('l', one))]),
      );
    return { require: values(require), forbid: values(forbid), prefer: values(prefer), spread: this.name('k', spread) };
  }

  gone(id: MachineId): void {
    this.#machines.delete(id);
  }

  facts({ quota, volumeHomes, image }: ClassFacts): FactsLine {
    return {
      ...(quota === undefined ? {} : { quota }),
      homes: [...volumeHomes],
      image: image === null ? null : { machines: [...image.machines], inRegistry: image.inRegistry },
    };
  }

  holding({ workspaceId, queue, ...rest }: Holding): Holding {
    return { ...rest, workspaceId: this.name('w', workspaceId), queue: this.name('q', queue) };
  }
}

/** Turns parts of lines into what the planner is told. */
export class Decoder {
  readonly #templates = new Map<number, Template>();
  readonly #machines = new Map<MachineId, PlacementMachine>();

  template(number: number, fields: Template): void {
    this.#templates.set(number, fields);
  }

  wanted([id, createdAtMs, number]: WantedLine): Wanted {
    const template = this.#templates.get(number);
    if (template === undefined) throw new Error(`there is no template ${number}`);
    return { id, createdAtMs, ...template };
  }

  machine(machineId: MachineId, { volumeDrivers, images, caches, ...changed }: MachineFields): PlacementMachine {
    const before = this.#machines.get(machineId);
    const machine = {
      ...before,
      ...changed,
      volumeDrivers: volumeDrivers === undefined ? before?.volumeDrivers : new Set(volumeDrivers),
      images: images === undefined ? before?.images : new Set(images),
      caches: caches === undefined ? before?.caches : new Set(caches),
    } as PlacementMachine;
    this.#machines.set(machineId, machine);
    return machine;
  }

  gone(id: MachineId): void {
    this.#machines.delete(id);
  }

  facts({ quota, homes, image }: FactsLine): ClassFacts {
    return {
      quota,
      volumeHomes: new Set(homes),
      image: image === null ? null : { machines: new Set(image.machines), inRegistry: image.inRegistry },
    };
  }
}

/** Classes have numbers in a recording, in the order in which they are named first. */
export class ClassNumbers {
  readonly #numbers = new WeakMap<FitClass, number>();
  #count = 0;

  of(fitClass: FitClass): number {
    let number = this.#numbers.get(fitClass);
    if (number === undefined) {
      number = this.#count;
      this.#count += 1;
      this.#numbers.set(fitClass, number);
    }
    return number;
  }
}

/** A step of the planner as a recording has it. */
export function stepLine(step: Step | undefined, numberOf: (fitClass: FitClass) => number): StepLine {
  if (step === undefined) return null;
  if (step.kind === 'ask') return { ask: step.classes.map(numberOf) };
  if (step.kind === 'refused') return { refused: step.item.wanted.id };
  return { chosen: step.item.wanted.id, ...choiceLine(step.choice) };
}

/** Reservations as a recording has them. */
export const reservedLine = ({ reservations }: Planner, againAtMs: number | undefined): ReservedLine => [
  againAtMs ?? null,
  ...[...reservations.all()].map(({ machineId, item, gpuUuids }) => [machineId, item.wanted.id, ...gpuUuids] as const),
];

/** A choice as a recording has it. */
export const choiceLine = ({ machineId, gpuUuids }: Choice): ChoiceLine => ({ on: machineId, gpus: gpuUuids });
/** The same; null: there was none. */
export const maybeChoiceLine = (choice: Choice | undefined): ChoiceLine | null =>
  choice === undefined ? null : choiceLine(choice);
