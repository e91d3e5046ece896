"""Routes of jobs; ``job_kinds`` defines them, ``service.jobs`` runs them.  A job that was accepted
(202) is durable: it is done, or says why not.  Work on the whole store needs ``operate`` on all
streams; a change of one stream needs the rights of its own route.
"""

from __future__ import annotations

from fastapi import APIRouter, Request, Response

from ..access.auth import Principal, Requester
from ..http.problems import Problem
from ..http.request_head import PathName
from ..http.responses import reply
from ..service.jobs import Job
from ..service.state import server_of
from .job_kinds import JobSpec
from .json_bodies import read_spec, spec_body

__all__ = ["router"]

router = APIRouter(prefix="/v1", tags=["jobs"])


@router.post("/jobs", status_code=202, summary="Begin a job", openapi_extra=spec_body(JobSpec))
async def begin_job(request: Request, principal: Requester) -> Response:
    """Answers at once; `GET` of its `Location` gives progress and outcome."""
    principal.require("operate")
    spec = (await read_spec(request, JobSpec)).root
    spec.require(principal)
    server = server_of(request)

    def begun() -> Job:
        spec.check_new(server)
        asked = spec.model_dump(mode="json", exclude_none=True)
        return server.jobs.start(asked, principal.owner, spec.work(server))

    job = await server.call(begun)
    return reply(job.to_json(), 202, {"Location": f"/v1/jobs/{job.id}"})


@router.get("/jobs", summary="List jobs")
async def list_jobs(request: Request, principal: Requester) -> Response:
    """Waiting and running jobs, and the last that ended; without all streams, your own."""
    principal.require("operate")
    jobs = server_of(request).jobs.list()
    return reply({"jobs": [job.to_json() for job in jobs if _visible(job, principal)]})


@router.get("/jobs/{job_id}", summary="Describe a job")
async def describe_job(request: Request, principal: Requester, job_id: PathName) -> Response:
    """Its progress, or how it ended."""
    return reply(_found(request, principal, job_id).to_json())


@router.delete("/jobs/{job_id}", status_code=204, summary="Cancel a job")
async def cancel_job(request: Request, principal: Requester, job_id: PathName) -> Response:
    """It ends before its next step; a job that has ended is unchanged."""
    server = server_of(request)
    await server.call(server.jobs.cancel, _found(request, principal, job_id))
    return Response(status_code=204)


def _visible(job: Job, principal: Principal) -> bool:
    return principal.everywhere or job.owner == principal.owner


def _found(request: Request, principal: Principal, job_id: str) -> Job:
    principal.require("operate")
    job = server_of(request).jobs.find(job_id)
    if job is None or not _visible(job, principal):
        raise Problem("not-found", 404, f"there is no job {job_id!r}; GET /v1/jobs lists them")
    return job
