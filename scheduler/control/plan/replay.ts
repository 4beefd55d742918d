// Replays a recording: a new planner is told the same in the same order, and must answer the same.
import type { MachineId } from '#shared/domain/ids.ts';
import type { FitClass } from './fit-class.ts';
import { Planner } from './planner.ts';
import { ClassNumbers, Decoder, maybeChoiceLine, reservedLine, stepLine } from './recording.ts';
import type { Line } from './recording.ts';

/** An answer that is another one than was recorded. */
export interface Difference {
  readonly line: Line;
  readonly replayed: unknown;
}

export class Replay {
  readonly #planner: Planner;
  readonly #decoder = new Decoder();
  readonly #numbers = new ClassNumbers();
  readonly #classes: FitClass[] = [];
  #shunned: (readonly MachineId[])[] = [];
  #compared = 0;

  constructor() {
    this.#planner = new Planner(() => new Set(this.#shunned.shift() ?? []));
  }

  /** Number of answers that were compared. */
  get compared(): number {
    return this.#compared;
  }

  /**
   * Tells the planner what the line says.
   * @returns undefined: the planner answered as recorded, or was asked nothing
   * @throws Error: the line is none of a recording
   */
  play(line: Line): Difference | undefined {
    this.#shunned = [...(line.shunned ?? [])];
    const replayed = this.#call(line);
    if (!('got' in line)) return undefined;
    this.#compared += 1;
    return JSON.stringify(replayed) === JSON.stringify(line.got) ? undefined : { line, replayed };
  }

  /** @returns what the line's `got` must be */
  #call(line: Line): unknown {
    const planner = this.#planner;
    const decoder = this.#decoder;
    switch (line.do) {
      case 'template':
        return decoder.template(line.number, line.fields);
      case 'doubtful':
        planner.doubtful = new Set(line.machines);
        return undefined;
      case 'add': {
        const item = planner.add(decoder.wanted(line.wanted));
        if (item !== undefined) this.#numberOf(item.fitClass);
        return item !== undefined;
      }
      case 'remove':
        return planner.remove(line.id);
      case 'classOf':
        return this.#numberOf(planner.classOf(decoder.wanted(line.wanted)));
      case 'isBusy':
        return planner.isBusy;
      case 'setMachine':
        return planner.setMachine(decoder.machine(line.id, line.changed));
      case 'deleteMachine':
        decoder.gone(line.id);
        return planner.deleteMachine(line.id);
      case 'hold':
        return planner.hold(line.id, line.holding);
      case 'release':
        return planner.release(line.id, line.workspace);
      case 'limitsChanged':
      case 'shareChanged':
        return planner[line.do](line.workspace);
      case 'setSharing':
        return planner.setSharing(line.sharing);
      case 'setShare':
        return planner.setShare(line.workspace, line.share);
      case 'imagesChanged':
      case 'forgetBlocks':
      case 'clear':
      case 'forgetFacts':
        return planner[line.do]();
      case 'know':
        return planner.know(this.#classOf(line.class), decoder.facts(line.facts));
      case 'next':
        return stepLine(planner.next(), (one) => this.#numberOf(one));
      case 'chooseNew': {
        const facts = line.facts === undefined ? undefined : decoder.facts(line.facts);
        const wanted = line.wanted.map((one) => decoder.wanted(one));
        return planner.chooseNew(wanted, facts).map(maybeChoiceLine);
      }
      case 'take':
        return planner.take(decoder.wanted(line.wanted), { machineId: line.choice.on, gpuUuids: line.choice.gpus });
      case 'reserve':
        return reservedLine(planner, planner.reserve(line.nowMs));
      case 'reclaim':
        return planner.reclaim(line.facts);
      case 'refusalsOf':
        return planner.refusalsOf(this.#classOf(line.class), line.nowMs);
      default:
        throw new Error(`"${String((line as { readonly do: unknown }).do)}" is nothing that a planner is told`);
    }
  }

  #numberOf(fitClass: FitClass): number {
    const number = this.#numbers.of(fitClass);
    this.#classes[number] = fitClass;
    return number;
  }

  #classOf(number: number): FitClass {
    const fitClass = this.#classes[number];
    if (fitClass === undefined) throw new Error(`there is no class ${number}`);
    return fitClass;
  }
}
