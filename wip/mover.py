"""mover.py TABLE: moves modules of src/dovetail and renames them in imports and texts."""
import ast, glob, os, re, subprocess, sys
root='src/dovetail'
table={}
for line in open(sys.argv[1]):
    if line.strip() and not line.startswith('#'):
        a,b=line.split(); table[a]=b
def dotted(p): return ('dovetail.'+p[:-3].replace('/','.')).removesuffix('.__init__')
mods={dotted(os.path.relpath(f,root)) for f in glob.glob(root+'/**/*.py',recursive=True)}
new={dotted(a):dotted(b) for a,b in table.items()}
for a in new: assert a in mods,a
clash=[b for b in new.values() if b in mods and b not in new]
assert not clash, clash
def rename_module(m): return new.get(m,m)
files=[f for pat in ('src/**/*.py','src/**/*.pyi','tests/**/*.py','bench/**/*.py','fuzz/*.py','examples/**/*.py','docs/**/*.py') for f in glob.glob(pat,recursive=True)]
notes=[]
for f in files:
    src=open(f).read()
    try: tree=ast.parse(src)
    except SyntaxError: notes.append(('syntax',f)); continue
    lines=src.split('\n'); edits=[]; renames={}
    names={n.id for n in ast.walk(tree) if isinstance(n,ast.Name)}|{a.arg for a in ast.walk(tree) if isinstance(a,ast.arg)}
    for n in ast.walk(tree):
        if isinstance(n,ast.ImportFrom) and n.level==0 and n.module and n.module.split('.')[0]=='dovetail':
            groups={}
            changed=False
            for a in n.names:
                full=n.module+'.'+a.name
                if full in new:
                    pkg,_,last=new[full].rpartition('.')
                    asname=a.asname
                    if last!=a.name and asname is None:
                        used=[x for x in ast.walk(tree) if isinstance(x,ast.Name) and x.id==a.name]
                        if f.endswith('__init__.py') and not used: pass
                        elif last in names:
                            asname=a.name; notes.append(('kept-as',f,a.name,last))
                        else: renames[a.name]=last
                    if asname==last: asname=None
                    groups.setdefault(pkg,[]).append((last,asname)); changed=True
                else:
                    m=rename_module(n.module)
                    changed|= m!=n.module
                    groups.setdefault(m,[]).append((a.name,a.asname))
            if changed:
                ind=re.match(r'\s*',lines[n.lineno-1]).group()
                out=[]
                comment=''
                mm=re.search(r'  #.*$',lines[n.lineno-1]) if n.lineno==n.end_lineno else None
                comment=mm.group() if mm else ''
                for pkg,items in groups.items():
                    body=', '.join(x if y is None else f'{x} as {y}' for x,y in items)
                    if len(groups)==1 and n.lineno==n.end_lineno: out.append(f'{ind}from {pkg} import {body}{comment}')
                    else: out.append(f'{ind}from {pkg} import ({body})')
                edits.append((n.lineno-1,n.end_lineno,out))
        elif isinstance(n,ast.Import):
            for a in n.names:
                if a.name in new: notes.append(('import',f,a.name))
    if renames:
        pos=[]
        for x in ast.walk(tree):
            if isinstance(x,ast.Name) and x.id in renames: pos.append((x.lineno-1,x.col_offset,x.id))
        for l,c,i in sorted(pos,reverse=True):
            b=lines[l].encode(); assert b[c:c+len(i)]==i.encode(); lines[l]=(b[:c]+renames[i].encode()+b[c+len(i):]).decode()
        notes.append(('renamed',f,renames))
    for s,e,out in sorted(edits,reverse=True): lines[s:e]=out
    if edits or renames:
        open(f,'w').write('\n'.join(lines))
for a,b in table.items():
    d=os.path.dirname(f'{root}/{b}'); os.makedirs(d,exist_ok=True)
# two phases so that a/x.py -> b and b/x.py do not collide
for a,b in table.items(): subprocess.run(['git','mv',f'{root}/{a}',f'{root}/{a}.moving'],check=True)
for a,b in table.items():
    subprocess.run(['git','mv',f'{root}/{a}.moving',f'{root}/{b}'],check=True)
# texts
pairs=sorted(((a,b) for a,b in table.items()),key=lambda p:-len(p[0]))
texts=files+glob.glob('docs/*.md')+glob.glob('*.md')+glob.glob('src/**/*.toml',recursive=True)+glob.glob('tests/**/*.toml',recursive=True)+['pyproject.toml','Makefile','CMakeLists.txt']+glob.glob('native/**/*.*',recursive=True)+glob.glob('bench/**/*.*',recursive=True)
moved={f'{root}/{a}':f'{root}/{b}' for a,b in table.items()}
for f in sorted(set(texts)):
    f=moved.get(f,f)
    if not os.path.isfile(f): continue
    try: s=open(f).read()
    except UnicodeDecodeError: continue
    pattern=re.compile('|'.join(r'(?<![\w./])(?:src/dovetail/)?'+re.escape(a)+r'(?![\w])' for a,_ in pairs))
    t=pattern.sub(lambda m:('src/dovetail/' if m.group().startswith('src/') else '')+table[m.group().removeprefix('src/dovetail/')],s)
    dot=re.compile('|'.join(r'(?<![\w.])'+re.escape(a)+r'(?![\w.]| import)' for a in sorted(new,key=len,reverse=True)))
    t=dot.sub(lambda m:new[m.group()],t)
    if t!=s: open(f,'w').write(t); notes.append(('text',f))
for n in notes: print(*n)
