/**
 * A pod that speaks the OpenAI API on a port, with Python's standard library alone. No model is behind it: the answer
 * repeats the last message three times. The message `die` ends the program in the middle of a stream.
 */
import type { Platform } from './platform.ts';

export const POD_PORT = 8000;

const PROGRAM = `
import json, os, time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

class Handler(BaseHTTPRequestHandler):
    protocol_version = 'HTTP/1.1'
    def log_message(self, *_args):
        pass
    def do_POST(self):
        request = json.loads(self.rfile.read(int(self.headers['content-length'])))
        word = request['messages'][-1]['content']
        parts = [f'{word} {at} ' for at in range(3)]
        usage = {'prompt_tokens': 1, 'completion_tokens': 3, 'total_tokens': 4}
        common = {'id': 'chatcmpl-pod', 'created': 1700000000, 'model': request['model']}
        if request.get('stream'):
            return self.stream(word, parts, usage, common)
        message = {'role': 'assistant', 'content': ''.join(parts)}
        choice = {'index': 0, 'message': message, 'finish_reason': 'stop'}
        body = json.dumps({**common, 'object': 'chat.completion', 'choices': [choice], 'usage': usage}).encode()
        self.send_response(200)
        self.send_header('content-type', 'application/json')
        self.send_header('content-length', str(len(body)))
        self.end_headers()
        self.wfile.write(body)
    def stream(self, word, parts, usage, common):
        self.send_response(200)
        self.send_header('content-type', 'text/event-stream')
        self.send_header('transfer-encoding', 'chunked')
        self.end_headers()
        frame = {**common, 'object': 'chat.completion.chunk'}
        for part in parts:
            delta = {'content': part}
            self.event(json.dumps({**frame, 'choices': [{'index': 0, 'delta': delta, 'finish_reason': None}]}))
            if word == 'die':
                time.sleep(0.5)
                os._exit(3)
        self.event(json.dumps({**frame, 'choices': [{'index': 0, 'delta': {}, 'finish_reason': 'stop'}]}))
        self.event(json.dumps({**frame, 'choices': [], 'usage': usage}))
        self.event('[DONE]')
        self.wfile.write(b'0\\r\\n\\r\\n')
    def event(self, data):
        text = f'data: {data}\\n\\n'.encode()
        self.wfile.write(f'{len(text):x}\\r\\n'.encode() + text + b'\\r\\n')
        self.wfile.flush()

ThreadingHTTPServer(('127.0.0.1', ${POD_PORT}), Handler).serve_forever()
`;

/** Deploys the pod under that name. */
export async function deployPodModel(platform: Platform, name: string): Promise<void> {
  const made = await platform.gateway('/stubs', {
    name,
    handler: '',
    cpu: 250,
    memory: 128,
    keepWarmSeconds: 30,
    ports: [POD_PORT],
    stubType: 'pod/deployment',
    entrypoint: ['python3', '-c', PROGRAM],
  });
  await platform.gateway('/stubs/deploy', { stubId: String(made['stubId']), name });
}
