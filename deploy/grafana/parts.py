"""The parts of a Grafana dashboard: panels, variables, annotations, and how they lie on the page."""

DATASOURCE = {"type": "prometheus", "uid": "${datasource}"}
# The lowest that has all that is used here: Grafana 10.1.
SCHEMA = 38
COLUMNS = 24


def target(expr, legend="", instant=False):
    return {"datasource": DATASOURCE, "expr": expr, "legendFormat": legend or "__auto", "instant": instant,
            "range": not instant, "format": "table" if instant and not legend else "time_series"}


def quantile(share, histogram, where, by=""):
    """Of what a histogram saw lately. `by`: labels that stay, with a comma behind each."""
    return f"histogram_quantile({share}, sum by ({by}le) (rate({histogram}_bucket{{{where}}}[$__rate_interval])))"


def panel(kind, title, description, targets, unit, width, height, defaults=None, options=None):
    for letter, one in zip("ABCDEFGH", targets):
        one["refId"] = letter
    fields = {"unit": unit, **(defaults or {})}
    return {"type": kind, "title": title, "description": description, "datasource": DATASOURCE,
            "gridPos": {"h": height, "w": width, "x": 0, "y": 0}, "targets": targets,
            "fieldConfig": {"defaults": fields, "overrides": []}, "options": options or {}}


def graph(title, description, unit, *targets, width=12, stacked=False, minimum=0, maximum=None):
    custom = {"drawStyle": "line", "lineWidth": 1, "fillOpacity": 30 if stacked else 8, "showPoints": "never",
              "spanNulls": False, "stacking": {"mode": "normal" if stacked else "none", "group": "A"}}
    defaults = {"custom": custom, "color": {"mode": "palette-classic"}}
    if minimum is not None:
        defaults["min"] = minimum
    if maximum is not None:
        defaults["max"] = maximum
    options = {"legend": {"displayMode": "table", "placement": "bottom", "showLegend": True,
                          "calcs": ["lastNotNull", "max"]},
               "tooltip": {"mode": "multi", "sort": "desc"}}
    return panel("timeseries", title, description, list(targets), unit, width, 8, defaults, options)


def number(title, description, unit, expr, width=4, decimals=None, thresholds=None, trend=True):
    defaults = {"color": {"mode": "thresholds" if thresholds else "fixed", "fixedColor": "text"},
                "thresholds": {"mode": "absolute", "steps": thresholds or [{"color": "text", "value": None}]}}
    if decimals is not None:
        defaults["decimals"] = decimals
    options = {"reduceOptions": {"calcs": ["lastNotNull"], "fields": "", "values": False},
               "colorMode": "value", "graphMode": "area" if trend else "none", "textMode": "auto",
               "justifyMode": "auto", "orientation": "auto"}
    return panel("stat", title, description, [target(expr, "-")], unit, width, 4, defaults, options)


def bars(title, description, unit, *targets, width=12, height=8):
    options = {"reduceOptions": {"calcs": ["lastNotNull"], "fields": "", "values": False},
               "orientation": "horizontal", "displayMode": "gradient", "showUnfilled": True, "valueMode": "color"}
    defaults = {"min": 0, "color": {"mode": "continuous-GrYlRd"}}
    return panel("bargauge", title, description, list(targets), unit, width, height, defaults, options)


def table(title, description, columns, join, rename, width=24, height=10, units=None):
    """`columns`: {name: expr}, one row for each value of the labels `join`."""
    targets = [target(expr, instant=True) for expr in columns.values()]
    one = panel("table", title, description, targets, "none", width, height,
                {"custom": {"align": "auto", "filterable": True}}, {"showHeader": True, "cellHeight": "sm"})
    # Grafana leaves out the letter where there is one question only.
    names = {f"Value #{letter}" if len(columns) > 1 else "Value": name for letter, name in zip("ABCDEFGH", columns)}
    one["transformations"] = [
        {"id": "merge", "options": {}},
        {"id": "organize", "options": {"excludeByName": {"Time": True}, "renameByName": {**names, **rename},
                                       "indexByName": {label: at for at, label in enumerate(join)}}}]
    one["fieldConfig"]["overrides"] = [
        {"matcher": {"id": "byName", "options": name}, "properties": [{"id": "unit", "value": unit}]}
        for name, unit in (units or {}).items()]
    return one


def row(title, *panels, collapsed=False):
    """A heading and what lies below it; a collapsed row asks nothing until it is opened."""
    return {"row": title, "panels": list(panels), "collapsed": collapsed}


def variable(name, label, query, many=False, everything=True):
    return {"type": "query", "name": name, "label": label, "datasource": DATASOURCE, "hide": 0,
            "query": {"query": query, "refId": name}, "refresh": 2, "sort": 1,
            "multi": many, "includeAll": everything, "allValue": ".*" if everything else None,
            "current": {"text": "All", "value": "$__all"} if everything else {}, "options": []}


NAMESPACE = variable("namespace", "Namespace", "label_values(trainyard_task_ready, namespace)", many=True)
CLUSTER_NAMESPACE = variable("namespace", "Namespace", "label_values(trainyard_job_replicas, job_namespace)",
                             many=True)
JOB = variable("job_name", "Job", 'label_values(trainyard_task_ready{namespace=~"$namespace"}, trainyard_job)',
               everything=False)


def annotation(name, colour, expr, title, text):
    return {"name": name, "datasource": DATASOURCE, "enable": True, "iconColor": colour, "expr": expr,
            "step": "15s", "titleFormat": title, "textFormat": text, "useValueForTime": False}


def laid_out(rows):
    """Panels with their places and numbers, from left to right and top to bottom."""
    result, identity, y = [], 0, 0
    for one in rows:
        identity += 1
        head = {"type": "row", "id": identity, "title": one["row"], "collapsed": one["collapsed"],
                "gridPos": {"h": 1, "w": COLUMNS, "x": 0, "y": y}, "panels": []}
        y += 1
        x = height = 0
        placed = []
        for each in one["panels"]:
            place = each["gridPos"]
            if x + place["w"] > COLUMNS:
                x, y, height = 0, y + height, 0
            identity += 1
            placed.append({**each, "id": identity, "gridPos": {**place, "x": x, "y": y}})
            x += place["w"]
            height = max(height, place["h"])
        y += height
        if one["collapsed"]:
            head["panels"] = placed
            result.append(head)
        else:
            result += [head, *placed]
    return result


def dashboard(uid, title, description, variables, rows, annotations=()):
    datasource = {"type": "datasource", "name": "datasource", "label": "Data source", "query": "prometheus",
                  "hide": 0, "includeAll": False, "multi": False, "options": [], "refresh": 1, "regex": "",
                  "current": {}}
    link = {"type": "dashboards", "title": "Trainyard", "tags": ["trainyard"], "asDropdown": True,
            "includeVars": True, "keepTime": True, "icon": "external link", "targetBlank": False, "tooltip": "",
            "url": ""}
    return {"uid": uid, "title": title, "description": description, "tags": ["trainyard"],
            "schemaVersion": SCHEMA, "version": 1, "editable": False, "graphTooltip": 1, "timezone": "browser",
            "refresh": "30s", "time": {"from": "now-1h", "to": "now"}, "fiscalYearStartMonth": 0,
            "liveNow": False, "weekStart": "", "timepicker": {}, "links": [link],
            "templating": {"list": [datasource, *variables]}, "annotations": {"list": list(annotations)},
            "panels": laid_out(rows)}
