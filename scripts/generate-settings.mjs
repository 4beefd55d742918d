// Writes docs/settings.md from the schemas that the daemons read their settings by; a unit test fails when the file is behind.
import { writeFileSync } from 'node:fs';
import { AgentSettings } from '../agent/config.ts';
import { SchedulerSettings } from '../scheduler/config.ts';
import { settingsPage } from './settings-page.mjs';

writeFileSync('docs/settings.md', settingsPage({ scheduler: SchedulerSettings, agent: AgentSettings }));
