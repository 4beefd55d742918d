// Writes docs/settings.md and the sample environment files in systemd/ from the schemas that the daemons read their settings by; a unit test fails when one is behind.
import { writeFileSync } from 'node:fs';
import { AgentSettings } from '../agent/config.ts';
import { SchedulerSettings } from '../scheduler/config.ts';
import { sampleEnvironments, settingsPage } from './settings-page.mjs';

const schemas = { scheduler: SchedulerSettings, agent: AgentSettings };
writeFileSync('docs/settings.md', settingsPage(schemas));
for (const [name, text] of Object.entries(sampleEnvironments(schemas))) writeFileSync(`systemd/${name}`, text);
