// An image with scikit-learn, made by hand as people make theirs: the base image, a virtual environment, pip. Kept by
// its tag, so that only the first run on an engine pays for it.
import { createHash } from 'node:crypto';
import { existsSync } from 'node:fs';
import type { TestDocker } from '../helpers/services.ts';
import { TEST_LABEL } from '../helpers/services.ts';

const PACKAGES = 'scikit-learn==1.5.2';
/** Certificates that this machine trusts, by the same variable as set-up and the clients here use. */
const HOST_CA = process.env['SSL_CERT_FILE'] || '/etc/ssl/certs/ca-certificates.crt';
const VENV = '/opt/ml';
const BUILD_MS = 170_000;
/** Variables of this host that pip needs to reach its index. */
const PASSED_ON = ['PIP_INDEX_URL', 'PIP_EXTRA_INDEX_URL', 'HTTP_PROXY', 'HTTPS_PROXY', 'NO_PROXY'];

/** The image's reference; builds it when the engine has none for its base image. */
export async function kmeansImage(engine: TestDocker): Promise<string> {
  const { client, baseImage } = engine;
  const base = await client.getImage(baseImage).inspect();
  const tag = createHash('sha256').update(`${base.Id} ${PACKAGES}`).digest('hex').slice(0, 12);
  const reference = `longshore-test-kmeans:${tag}`;
  const images = await client.listImages({ filters: { reference: [reference] } });
  if (images.length > 0) return reference;
  const settings = PASSED_ON.flatMap((name) => {
    const value = process.env[name] ?? process.env[name.toLowerCase()];
    return value === undefined ? [] : [`export ${name}='${value}'`];
  });
  const steps = [
    ...settings,
    ...(existsSync(HOST_CA) ? [`export PIP_CERT=${HOST_CA}`] : []),
    `python3 -m venv ${VENV}`,
    `${VENV}/bin/pip install --no-cache-dir --disable-pip-version-check --only-binary :all: ${PACKAGES}`,
  ];
  const container = await engine.run({
    Cmd: ['sh', '-ec', steps.join('\n')],
    HostConfig: { NetworkMode: 'host', Binds: existsSync(HOST_CA) ? [`${HOST_CA}:${HOST_CA}:ro`] : [] },
  });
  try {
    const late = setTimeout(() => void container.kill().catch(() => undefined), BUILD_MS);
    const { StatusCode: code } = (await container.wait()) as { readonly StatusCode: number };
    clearTimeout(late);
    if (code !== 0) {
      const output = await container.logs({ stdout: true, stderr: true, tail: 20 });
      throw new Error(`the image with ${PACKAGES} could not be built (code ${code}):\n${output.toString('utf8')}`);
    }
    // The label is emptied, because otherwise every container of the image would count as this run's.
    const changes = [`ENV PATH=${VENV}/bin:/usr/local/bin:/usr/bin:/bin`, 'CMD ["python3"]', `LABEL ${TEST_LABEL}=`];
    const [repo, name] = reference.split(':');
    await container.commit({ repo, tag: name, changes: changes.join('\n') });
    return reference;
  } finally {
    await container.remove({ force: true, v: true });
  }
}
