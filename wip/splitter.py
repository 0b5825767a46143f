"""splitter.py SRC DST NAMES [DOCSTRING]: moves top-level definitions between modules of src/dovetail."""
import ast,glob,os,re,sys,subprocess
root='src/dovetail'
srcp,dstp,names=sys.argv[1:4]; names=names.split(','); doc=sys.argv[4] if len(sys.argv)>4 else ''
def dotted(p): return 'dovetail.'+p[:-3].replace('/','.')
S,D=dotted(srcp),dotted(dstp)
sp,dp=f'{root}/{srcp}',f'{root}/{dstp}'
src=open(sp).read(); tree=ast.parse(src); lines=src.split('\n')
def name_of(n):
    if isinstance(n,(ast.FunctionDef,ast.ClassDef)): return [n.name]
    if isinstance(n,ast.Assign): return [t.id for x in n.targets for t in ast.walk(x) if isinstance(t,ast.Name)]
    if isinstance(n,ast.AnnAssign): return [n.target.id]
    return []
body=tree.body; taken=[]; missing=set(names)
for i,n in enumerate(body):
    ns=name_of(n)
    if ns and set(ns)&set(names):
        assert set(ns)<=set(names),ns
        missing-=set(ns)
        start=min([n.lineno]+[d.lineno for d in getattr(n,'decorator_list',[])])-1
        end=n.end_lineno
        if i+1<len(body) and isinstance(body[i+1],ast.Expr) and isinstance(body[i+1].value,ast.Constant) and isinstance(body[i+1].value.value,str): end=body[i+1].end_lineno
        while start>0 and lines[start-1].startswith('#'): start-=1
        taken.append((start,end))
assert not missing,missing
chunks=['\n'.join(lines[s:e]) for s,e in taken]
keep=lines[:]
for s,e in sorted(taken,reverse=True): del keep[s:e]
imports=[n for n in body if isinstance(n,(ast.Import,ast.ImportFrom)) and not (isinstance(n,ast.ImportFrom) and n.module=='__future__')]
imps='\n'.join('\n'.join(lines[n.lineno-1:n.end_lineno]) for n in imports)
tc=[n for n in body if isinstance(n,ast.If) and 'TYPE_CHECKING' in ast.unparse(n.test)]
imps+='\n'+'\n'.join('\n'.join(lines[n.lineno-1:n.end_lineno]) for n in tc)
text='\n'.join(keep)
def drop_all(t,names):
    m=re.search(r'^__all__ = \[(.*?)\]',t,re.S|re.M)
    if not m: return t,[]
    items=re.findall(r'"([^"]+)"',m.group(1)); gone=[x for x in items if x in names]
    left=[x for x in items if x not in names]
    new='__all__ = ['+', '.join(f'"{x}"' for x in left)+']' if left else ''
    return t[:m.start()]+new+t[m.end():],gone
text,exported=drop_all(text,names)
# remaining uses in SRC
rest=ast.parse(text); used={n.id for n in ast.walk(rest) if isinstance(n,ast.Name)}
# names in quotes of annotations are covered by from __future__ annotations
back=[x for x in names if x in used]
if back:
    first=[n for n in rest.body if isinstance(n,(ast.Import,ast.ImportFrom))][-1]
    L=text.split('\n'); L.insert(first.end_lineno,f'from {D} import ({", ".join(back)})'); text='\n'.join(L)
open(sp,'w').write(text)
others={y for n in body for y in name_of(n)}-set(names)
moved_uses={n.id for c in chunks for n in ast.walk(ast.parse(c)) if isinstance(n,ast.Name)}
need=[x for x in others if x in moved_uses]
if os.path.exists(dp):
    d=open(dp).read(); dt=ast.parse(d); dl=d.split('\n')
    last=[n for n in dt.body if isinstance(n,(ast.Import,ast.ImportFrom))][-1].end_lineno
    head=dl[:last]; tail='\n'.join(dl[last:])
    m=re.search(r'^__all__ = \[(.*?)\]',tail,re.S|re.M); allb=''
    if m:
        items=sorted(set(re.findall(r'"([^"]+)"',m.group(1)))|set(exported)); allb='\n\n__all__ = ['+', '.join(f'"{x}"' for x in items)+']\n'; tail=tail[:m.start()]+tail[m.end():]
    out='\n'.join(head)+'\n'+imps+'\n'+(f'from {S} import ({", ".join(need)})\n' if need else '')+tail.rstrip()+'\n\n\n'+'\n\n\n'.join(chunks)+'\n'+allb
else:
    os.makedirs(os.path.dirname(dp),exist_ok=True)
    out=f'"""{doc}"""\n\nfrom __future__ import annotations\n\n'+imps+'\n'+(f'from {S} import ({", ".join(need)})\n' if need else '')+'\n\n'+'\n\n\n'.join(chunks)+'\n'
    if exported: out+='\n\n__all__ = ['+', '.join(f'"{x}"' for x in sorted(exported))+']\n'
open(dp,'w').write(out)
if need and back: print('CYCLE?',S,'needs',back,'and',D,'needs',need)
for pat in ('src/**/*.py','tests/**/*.py','bench/**/*.py','fuzz/*.py','examples/*.py','docs/*.py'):
    for f in glob.glob(pat,recursive=True):
        if os.path.samefile(f,sp): continue
        s=open(f).read()
        if S not in s: continue
        t=ast.parse(s); L=s.split('\n'); ed=[]
        for n in ast.walk(t):
            if isinstance(n,ast.ImportFrom) and n.module==S and n.level==0:
                a=[x for x in n.names if x.name in names]; b=[x for x in n.names if x.name not in names]
                if not a: continue
                ind=re.match(r'\s*',L[n.lineno-1]).group(); o=[]
                w=lambda xs:', '.join(x.name if x.asname is None else f'{x.name} as {x.asname}' for x in xs)
                if b: o.append(f'{ind}from {S} import ({w(b)})')
                if not os.path.samefile(f,dp): o.append(f'{ind}from {D} import ({w(a)})')
                ed.append((n.lineno-1,n.end_lineno,o))
        for s0,e0,o in sorted(ed,reverse=True): L[s0:e0]=o
        if ed: open(f,'w').write('\n'.join(L))
subprocess.run(['git','add','-N',dp])
