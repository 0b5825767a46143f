// The worker of the search, run in a hidden frame where the site is opened as files: browsers start no worker from a file.
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(url) {
      super();
      this.frame = document.createElement("iframe");
      this.frame.hidden = true;
      const loaded = new Promise((resolve) => (this.frame.onload = resolve));
      document.body.append(this.frame);
      this.ready = loaded.then(() => this.start(new URL(url, location)));
    }

    start(url) {
      const scope = this.frame.contentWindow;
      scope.postMessage = (data) => this.dispatchEvent(new MessageEvent("message", { data }));
      scope.importScripts = (...urls) => urls.reduce((done, each) => done.then(() => this.load(each)), Promise.resolve());
      return this.load(url);
    }

    load(url) {
      const script = this.frame.contentDocument.createElement("script");
      script.src = url;
      const loaded = new Promise((resolve, reject) => Object.assign(script, { onload: resolve, onerror: reject }));
      this.frame.contentDocument.head.append(script);
      return loaded;
    }

    postMessage(data) {
      this.ready.then(() => this.frame.contentWindow.dispatchEvent(new MessageEvent("message", { data })));
    }

    terminate() {
      this.frame.remove();
    }
  };
}
