// Whether code of one stub's containers may run in another's. A pickled value is code of its writer: calls with pickled
// inputs and shared values ask here.
import type { StubId } from '#shared/domain/ids.ts';
import { storedConfig } from '../../domain/stub-config.ts';
import { mayTakeCodeOf } from './container-stubs.ts';
import type { StubRights } from './container-stubs.ts';
import type { Directory } from './directory.ts';

export type CodeTrust = (reader: StubId, writer: StubId) => Promise<boolean>;

export function codeTrust(directory: Pick<Directory, 'stub'>): CodeTrust {
  const rightsOf = async (id: StubId): Promise<StubRights | undefined> => {
    const row = await directory.stub(id);
    return row === undefined ? undefined : { appId: row.appId, config: storedConfig(row.config) };
  };
  return async (reader, writer) => {
    if (reader === writer) return true;
    const [own, other] = await Promise.all([rightsOf(reader), rightsOf(writer)]);
    return own !== undefined && other !== undefined && mayTakeCodeOf(own, other);
  };
}
