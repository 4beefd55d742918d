import { expect, test } from 'vitest';
import { serializeCarried } from '../../../scheduler/fleet/carried-bytes.ts';
import { loadLink } from '../../../shared/protocol/link.ts';

const carry = loadLink().longshore.agent.v1.AgentLink.service.Carry;

test.each([[[]], [[1]], [[60, 67]], [[60, 68]], [[7, 65_536]], [[1, 16_383]], [[9, 262_144, 9, 200_000]]])(
  'pieces of %j bytes are read as one',
  (sizes: readonly number[]) => {
    const pieces = sizes.map((size, at) => Buffer.alloc(size, at + 1));
    expect(carry.responseDeserialize(serializeCarried({ data: pieces })).data).toEqual(Buffer.concat(pieces));
  },
);
